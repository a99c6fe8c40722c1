#!/usr/bin/env bash
# The whole walk on the ci of the Song dynasty, a step at a time.  Usage: examples/zh.sh [FOLDER]
set -eu
work=${1:-work/zh}

bertkit corpus songci --output_file "$work/songci.txt"
bertkit inspect corpus "$work/songci.txt"
bertkit vocab --input_file "$work/songci.txt" --vocab_size 8000 --output_dir "$work/vocab"
bertkit prepare --input_file "$work/songci.txt" --tokenizer "$work/vocab" --output_dir "$work/store"
bertkit pretrain --data_dir "$work/store" --output_dir "$work/run" --model_size tiny --max_minutes 4
bertkit fill-mask --model "$work/run" "我住长江头，[MASK]住长[MASK]尾。" "十年生死两茫茫。不思量。自难忘。"
bertkit next-sentence --model "$work/run" "风住尘香花已尽，日晚倦梳头。" "物是人非事事休，欲语泪先流。"
