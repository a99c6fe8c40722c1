#!/usr/bin/env bash
# Which tune is a ci of the Song dynasty written to?  A BERT of yours learns it from texts and the names of their tunes.
# Usage: TUNES=FOLDER examples/finetune_zh.sh [MODEL] [FOLDER]
#   TUNES   a folder with train.tsv, dev.tsv and test.tsv: a header "text	label", then a ci and its tune a line
#   MODEL   what examples/zh.sh or `bertkit demo` left
set -eu
tunes=${TUNES:?name the folder with train.tsv, dev.tsv and test.tsv}
model=${1:-runs/demo}
work=${2:-work/tunes}

bertkit finetune sequence-classification --model_name_or_path "$model" --output_dir "$work/run" \
    --train_file "$tunes/train.tsv" --validation_file "$tunes/dev.tsv" --test_file "$tunes/test.tsv" \
    --learning_rate 3e-4 --num_train_epochs 5
bertkit finetune sequence-classification --model_name_or_path "$model" --output_dir "$work/layers" --compare_layers true \
    --train_file "$tunes/train.tsv" --validation_file "$tunes/dev.tsv" --learning_rate 1e-3 --num_train_epochs 3
bertkit evaluate --model "$work/run" --input_file "$tunes/test.tsv"
bertkit predict --model "$work/run" --input_file "$tunes/test.tsv" --output_file "$work/answers.jsonl"
