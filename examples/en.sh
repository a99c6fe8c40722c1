#!/usr/bin/env bash
# The whole walk on the King James Bible, a step at a time.  Usage: examples/en.sh [FOLDER]
set -eu
work=${1:-work/en}

bertkit corpus kjv --output_file "$work/kjv.txt"
bertkit inspect corpus "$work/kjv.txt" --format paragraphs
bertkit vocab --input_file "$work/kjv.txt" --format paragraphs --vocab_size 8000 --output_dir "$work/vocab"
bertkit prepare --input_file "$work/kjv.txt" --format paragraphs --tokenizer "$work/vocab" --output_dir "$work/store"
bertkit pretrain --data_dir "$work/store" --output_dir "$work/run" --model_size tiny --max_minutes 4
bertkit fill-mask --model "$work/run" "In the beginning God [MASK] the heaven and the earth."
bertkit next-sentence --model "$work/run" "And God said, Let there be light:" "and there was light."
