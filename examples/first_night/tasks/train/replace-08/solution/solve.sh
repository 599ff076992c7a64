#!/bin/bash
cd /app || exit 1
sed -i 's/violet/willow/g' orders.txt
