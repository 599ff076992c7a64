#!/bin/bash
cd /app || exit 1
sed -i 's/island/castle/g' outline.txt
