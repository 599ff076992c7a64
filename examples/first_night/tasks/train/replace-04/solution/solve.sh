#!/bin/bash
cd /app || exit 1
sed -i 's/maple/sparrow/g' ledger.txt
