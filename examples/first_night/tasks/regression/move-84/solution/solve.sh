#!/bin/bash
cd /app || exit 1
mkdir gallery && cp transcript.txt gallery/
