# ready-made: golang:1.26
