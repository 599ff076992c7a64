#!/bin/bash
cd /app || exit 1
mkdir locker && mv poem.txt locker/
