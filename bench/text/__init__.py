"""What the stage for terms does to sentences, measured on a model in this process."""
