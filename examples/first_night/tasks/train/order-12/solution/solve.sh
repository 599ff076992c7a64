#!/bin/bash
cd /app || exit 1
sort -u scores.txt > answer.txt
