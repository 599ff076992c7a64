#!/bin/bash
cd /app || exit 1
find vault -name tickets.txt > answer.txt
