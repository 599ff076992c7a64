#!/bin/bash
cd /app || exit 1
find project -name recipes.txt > answer.txt
