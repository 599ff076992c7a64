#!/bin/bash
cd /app || exit 1
grep ^flint= survey.conf | cut -d= -f2 > answer.txt
