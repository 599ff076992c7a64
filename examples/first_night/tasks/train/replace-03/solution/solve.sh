#!/bin/bash
cd /app || exit 1
sed -i 's/timber/rabbit/g' survey.txt
