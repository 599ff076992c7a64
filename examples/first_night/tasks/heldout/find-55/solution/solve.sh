#!/bin/bash
cd /app || exit 1
find barn -name memo.txt > answer.txt
