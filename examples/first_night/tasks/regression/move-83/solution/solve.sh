#!/bin/bash
cd /app || exit 1
mkdir basement && mv poem.txt basement/
