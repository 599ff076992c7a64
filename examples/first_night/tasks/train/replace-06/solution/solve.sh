#!/bin/bash
cd /app || exit 1
sed -i 's/pigeon/copper/g' tasks.txt
