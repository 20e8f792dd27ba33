# ready-made: rust:1-slim
