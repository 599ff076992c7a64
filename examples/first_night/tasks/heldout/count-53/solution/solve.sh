#!/bin/bash
cd /app || exit 1
grep -c turnip findings.txt > answer.txt
