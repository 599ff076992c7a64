#!/bin/bash
cd /app || exit 1
sort -u roster.txt > answer.txt
