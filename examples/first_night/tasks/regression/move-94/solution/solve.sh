#!/bin/bash
cd /app || exit 1
mkdir tower && mv receipt.txt tower/
