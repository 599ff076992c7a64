#!/bin/bash
cd /app || exit 1
sort -n payroll.txt | head -n 1 > answer.txt
