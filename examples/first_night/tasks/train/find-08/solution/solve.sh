#!/bin/bash
cd /app || exit 1
find kitchen -name records.txt > answer.txt
