#!/bin/bash
cd /app || exit 1
find kitchen -name survey.txt > answer.txt
