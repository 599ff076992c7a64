#!/bin/bash
cd /app || exit 1
find vault -name findings.txt > answer.txt
