#!/bin/bash
cd /app || exit 1
sed -i 's/winter/spruce/g' minutes.txt
