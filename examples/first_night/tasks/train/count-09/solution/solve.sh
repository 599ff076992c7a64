#!/bin/bash
cd /app || exit 1
grep -c salmon orders.txt > answer.txt
