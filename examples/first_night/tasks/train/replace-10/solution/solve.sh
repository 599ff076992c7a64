#!/bin/bash
cd /app || exit 1
sed -i 's/spruce/mustard/g' notes.txt
