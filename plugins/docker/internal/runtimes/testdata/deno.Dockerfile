# ready-made: denoland/deno:debian
