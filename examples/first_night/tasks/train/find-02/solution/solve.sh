#!/bin/bash
cd /app || exit 1
find office -name survey.txt > answer.txt
