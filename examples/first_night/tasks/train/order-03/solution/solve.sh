#!/bin/bash
cd /app || exit 1
sort -n scores.txt | tail -n 1 > answer.txt
