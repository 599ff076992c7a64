#!/bin/bash
cd /app || exit 1
find project -name scores.txt > answer.txt
