#!/bin/bash
cd /app || exit 1
sed -i 's/gravel/zipper/g' payroll.txt
