#!/bin/bash
cd /app || exit 1
sort -u findings.txt > answer.txt
