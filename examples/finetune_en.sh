#!/usr/bin/env bash
# Names in English sentences, and answers to questions on a text, from files as they are published.
# Usage: NAMES=FOLDER QUESTIONS=FOLDER examples/finetune_en.sh [MODEL] [FOLDER]
#   NAMES      a folder with train.conll, dev.conll, test.conll: a word and its tag a line, a blank line between sentences
#   QUESTIONS  a folder with train.json and dev.json in the layout of SQuAD 1.1 or 2.0
#   MODEL      a BERT: a folder, or an id of the Hugging Face hub
set -eu
names=${NAMES:?name the folder with train.conll, dev.conll and test.conll}
questions=${QUESTIONS:?name the folder with train.json and dev.json}
model=${1:-google-bert/bert-base-uncased}
work=${2:-work/finetune-en}

bertkit finetune token-classification --model_name_or_path "$model" --output_dir "$work/names" \
    --train_file "$names/train.conll" --validation_file "$names/dev.conll" --test_file "$names/test.conll" \
    --layers -1,-2,-3,-4 --combine weighted
bertkit predict --model "$work/names" --input_file "$names/test.conll" --output_file "$work/names.jsonl"
bertkit finetune question-answering --model_name_or_path "$model" --output_dir "$work/questions" \
    --train_file "$questions/train.json" --validation_file "$questions/dev.json"
bertkit predict --model "$work/questions" --input_file "$questions/dev.json" --output_file "$work/predictions.json"
