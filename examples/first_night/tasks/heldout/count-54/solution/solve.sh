#!/bin/bash
cd /app || exit 1
grep -c biscuit agenda.txt > answer.txt
