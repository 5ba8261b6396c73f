ALTER TABLE trial ADD COLUMN weights_sha256 text;
