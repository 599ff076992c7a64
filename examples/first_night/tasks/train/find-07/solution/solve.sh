#!/bin/bash
cd /app || exit 1
find library -name diary.txt > answer.txt
