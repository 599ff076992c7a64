#!/bin/bash
cd /app || exit 1
grep -c maple tasks.txt > answer.txt
