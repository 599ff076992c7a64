#!/bin/bash
cd /app || exit 1
grep ^cloud= ledger.conf | cut -d= -f2 > answer.txt
