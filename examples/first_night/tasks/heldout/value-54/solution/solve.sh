#!/bin/bash
cd /app || exit 1
grep ^badger= chapter.conf | cut -d= -f2 > answer.txt
