#!/bin/bash
cd /app || exit 1
mkdir basement && cp receipt.txt basement/
