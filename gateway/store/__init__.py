"""Where commits and documents are kept. Only this package imports the MongoDB driver."""
