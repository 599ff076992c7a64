#!/bin/bash
cd /app || exit 1
sed -i 's/zipper/dolphin/g' catalog.txt
