#!/bin/bash
cd /app || exit 1
sed -i 's/pepper/valley/g' journal.txt
