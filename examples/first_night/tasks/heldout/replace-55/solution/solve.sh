#!/bin/bash
cd /app || exit 1
sed -i 's/cricket/zipper/g' expenses.txt
