#!/bin/bash
cd /app || exit 1
mkdir locker && cp transcript.txt locker/
