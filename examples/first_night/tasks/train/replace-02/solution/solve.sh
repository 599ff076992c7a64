#!/bin/bash
cd /app || exit 1
sed -i 's/willow/lantern/g' survey.txt
