#!/bin/bash
cd /app || exit 1
grep -c kernel invoice.txt > answer.txt
