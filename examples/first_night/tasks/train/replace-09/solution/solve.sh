#!/bin/bash
cd /app || exit 1
sed -i 's/honey/falcon/g' budget.txt
