"""The report as one self-contained web page, in the words and numbers of the terminal."""
