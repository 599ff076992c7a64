#!/bin/bash
cd /app || exit 1
find cabin -name payroll.txt > answer.txt
