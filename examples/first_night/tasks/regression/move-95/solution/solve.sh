#!/bin/bash
cd /app || exit 1
mkdir warehouse && cp poem.txt warehouse/
